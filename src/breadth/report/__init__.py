"""How results look: typed sections rendered to the terminal, to JSON and to one self-contained page.

Build a ``page.Page`` from the records in ``sections``; then ``terminal.render_terminal(page, console)``,
``jsonable.render_json(page)``, ``webpage.render_html(page)`` or ``webpage.save_html(page, path)``.
"""
