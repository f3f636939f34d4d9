"""What commands print about a journal: documents for --json, and the lines that tell the same to people."""
