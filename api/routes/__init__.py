"""The routes, one file a subject: each turns a request into a question and an answer into its schema."""
