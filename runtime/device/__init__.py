"""Adapters and devices, pipelines, and direct calls of wgpu-native."""
