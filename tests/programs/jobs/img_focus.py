"""img-focus: the regions of a portrait that matter."""

import inputs
from img_focus.detector import Salency
from PIL import Image


def run():
    portrait = Image.fromarray(inputs.portrait())
    salency = Salency()
    heat = salency.get_heatmap(portrait)
    return {"regions": salency.find_regions_of_interest(portrait), "heat": [float(heat.mean()), float(heat.max())]}
