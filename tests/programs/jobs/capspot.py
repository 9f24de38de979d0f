"""CapSpot: the places of a drawn captcha's characters in a picture."""

import inputs
from CapSpot import ImageMatcher


def run():
    order = inputs.png(inputs.text_picture(("K 7 R",))[20:100, :200])
    scene = inputs.png(inputs.text_picture(("7   R", "  K  "))[:, :320])
    return [
        list(map(float, place)) if hasattr(place, "__iter__") else place
        for place in ImageMatcher().match_images(order, scene)
    ]
