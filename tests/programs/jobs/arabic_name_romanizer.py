"""arabic-name-romanizer: names in Latin letters; the last two are in no dictionary."""

from arabic_name_romanizer import Transliterator

NAMES = ["محمد عبد الله", "فاطمة الزهراء", "زكنبور", "قشتملون"]


def run():
    found = Transliterator().transliterate_many(NAMES, top_k=3)
    return [[[each.text, float(each.score), each.source] for each in candidates] for candidates in found]
