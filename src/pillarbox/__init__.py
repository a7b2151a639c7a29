"""Pillarbox: the transactional outbox for Python."""
