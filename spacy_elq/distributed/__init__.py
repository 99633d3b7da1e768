"""Encode and link past one machine: parts that workers make, on this machine or on Ray."""
