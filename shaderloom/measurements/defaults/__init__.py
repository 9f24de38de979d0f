"""Measurements that are part of the package: a file for each kind of device."""
