"""For mypy alone: links to what stands beside layoutkit/ and is installed inside it."""
