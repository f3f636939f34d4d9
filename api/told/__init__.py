"""The journal's events and their words as the service tells them: models, sentences, and what is hidden."""
