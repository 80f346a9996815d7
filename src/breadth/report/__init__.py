"""How results look: typed sections rendered to the terminal, to JSON and to one self-contained page.

Build a ``sections.Page`` from the records in ``sections``; then ``terminal.render_terminal(page, console)``,
``jsonable.render_json(page)``, ``html_page.render_html(page)`` or ``html_page.save_html(page, path)``.
"""
