"""Bytes inside strings, continuation lines, comments at the end and odd comments keep their places."""
import functools


class Page:
  title = "Ä"

  @classmethod
  @functools.lru_cache(maxsize=4)
  def render(
    cls, name: str, width: "int" = 8, *parts,
    final: bool = False,
  ) -> str:
    '''Docstring
  of two lines.'''
    # Head of the page

    head = """\
<page>
    {name}
""".format(name=name) + f'''{width
      :>{width}}
   x'''
    if width > 4:
      head += "-" * \
        width
  # a comment that stands too far left
    else:
      head += "="
      # closes the else

    # Body
    body = [
      part.upper()   # each
      for part in parts
    ]
    if final:
        body.append("the end")  # deeper than the rest
    text = cls.title.join(body)
#   text = "commented out"
    return (head +
            text)
    # trailing comment of the method

  other = 1


def exercise():
  return [Page.render("n"), Page.render("ü", 3, "a", "b", final=True), Page.render.cache_info(), Page.other]
