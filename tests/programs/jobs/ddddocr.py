"""ddddocr: the characters of a drawn captcha, and the boxes that it finds around them."""

import ddddocr
import inputs


def run():
    picture = inputs.png(inputs.text_picture(("G7kP",))[:, :200])
    text = ddddocr.DdddOcr(show_ad=False).classification(picture)
    boxes = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False).detection(picture)
    return {"text": text, "boxes": [list(map(int, box)) for box in boxes]}
