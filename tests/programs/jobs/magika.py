"""magika: the kinds of five files, and how sure it is."""

from magika import Magika

FILES = [
    b"#!/usr/bin/env python3\nimport sys\n\n\ndef main() -> int:\n    print(sys.argv)\n    return 0\n" * 4,
    b'{"name": "graph", "nodes": [1, 2, 3], "edges": [[1, 2], [2, 3]], "directed": true}\n' * 6,
    b"<!DOCTYPE html><html><head><title>Page</title></head><body><p>Text</p></body></html>\n" * 5,
    b"# Title\n\nSome *text* with a [link](page.md).\n\n* one\n* two\n\n## More\n\nLast words.\n" * 5,
    b"id,name,price\n1,apple,0.5\n2,pear,0.75\n3,plum,0.25\n" * 20,
]


def run():
    results = [Magika().identify_bytes(content) for content in FILES]
    return [[str(result.output.label), float(result.score)] for result in results]
