"""The only room that sees both loops, and only through run folders: it judges, it never samples or trains."""
