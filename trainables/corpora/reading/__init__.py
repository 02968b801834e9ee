"""From files, data sets and grammars to documents."""
