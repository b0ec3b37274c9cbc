"""Parts of the stage ingest: reading robot logs, and the force on the knife from what they hold."""
