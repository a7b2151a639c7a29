"""Numbered steps from nothing to the schema of this release."""
