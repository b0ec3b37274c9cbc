"""Parts of the stage `ingest`: reading robot logs, and computing the force on the knife from them."""
