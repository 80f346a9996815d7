"""The task: facts, problems, the routes through them, the grammar of traces, and the teacher who writes them."""
