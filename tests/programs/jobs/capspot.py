"""CapSpot: the places of a drawn captcha's characters in a picture, in the order to click on them."""

import inputs
from CapSpot import ImageMatcher


def run():
    order = inputs.png(inputs.text_picture(("K 7 R",))[20:100, :200])
    scene = inputs.png(inputs.text_picture(("7   R", "  K  "))[:, :320])
    return {name: list(map(int, box)) for name, box in ImageMatcher().match_images(order, scene).items()}
