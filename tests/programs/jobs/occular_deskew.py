"""occular-deskew: the angle of a page that was turned by hand, and of one that lies on its side."""

import inputs
from occular_deskew import detect_angle
from PIL import Image


def run():
    page = Image.fromarray(inputs.text_picture(("Graph compiler", "Invoice 2048", "Total 37.50", "Page 1 of 4")))
    turned = page.rotate(7, expand=True, fillcolor="white")
    return [float(detect_angle(each)) for each in (page, turned, page.rotate(90, expand=True))]
