"""The cut that every stage simulates: knife, body, straight cut, tables."""
