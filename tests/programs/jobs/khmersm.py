"""khmersm: Khmer sentences in words."""

from khmersm import segment

SENTENCES = ["ខ្ញុំចង់ទៅផ្សារ", "ភាសាខ្មែរមានអក្សរច្រើន", "ថ្ងៃនេះអាកាសធាតុល្អណាស់"]


def run():
    return [segment(sentence) for sentence in SENTENCES]
