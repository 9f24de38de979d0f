"""captcha-whisperer: what a drawn captcha says, character by character."""

import captcha_whisperer
import inputs


def run():
    picture = inputs.png(inputs.text_picture(("4XK7",))[:, :200])
    return captcha_whisperer.recognize(picture, detailed=True)
