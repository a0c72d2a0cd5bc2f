"""The report as one self-contained HTML file: no request leaves it, light and dark, phone to desktop."""

from reports.html.page import MAX_BYTES, to_html

__all__ = ["MAX_BYTES", "to_html"]
