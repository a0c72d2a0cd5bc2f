"""Settings that are set again at run time."""

PAGES = 4


def configure(pages):
    global PAGES
    PAGES = pages
