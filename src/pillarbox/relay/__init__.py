"""The relay, in the order data visits it: tenure, read, lanes, encode, publish, settle, service."""
