"""Models of the field, in short files that can be copied.

>>> from treadle import models, nn, rng
>>> gpt = nn.inference(models.GPT2(100, 16, 2, 4, key=rng.key(0)))
>>> gpt([[5, 6, 7]]).shape
(1, 3, 100)
"""

from treadle.models.bert import Bert as Bert
from treadle.models.bert import BertClassifier as BertClassifier
from treadle.models.bert import BertMaskedLM as BertMaskedLM
from treadle.models.convnext import ConvNeXt as ConvNeXt
from treadle.models.diffusion import Diffusion as Diffusion
from treadle.models.diffusion import cosine_schedule as cosine_schedule
from treadle.models.diffusion import linear_schedule as linear_schedule
from treadle.models.diffusion_unet import DiffusionUNet as DiffusionUNet
from treadle.models.generate import Generated as Generated
from treadle.models.generate import generate as generate
from treadle.models.generate import stream as stream
from treadle.models.gpt2 import GPT2 as GPT2
from treadle.models.huggingface.folder import from_huggingface as from_huggingface
from treadle.models.huggingface.folder import to_huggingface as to_huggingface
from treadle.models.llama import Llama as Llama
from treadle.models.lstm import LSTMLM as LSTMLM
from treadle.models.mixer import MLPMixer as MLPMixer
from treadle.models.resnet import ResNet as ResNet
from treadle.models.sentence import SentenceEncoder as SentenceEncoder
from treadle.models.t5 import T5 as T5
from treadle.models.t5 import T5Decoder as T5Decoder
from treadle.models.t5 import T5Encoder as T5Encoder
from treadle.models.tokenizer import Tokenizer as Tokenizer
from treadle.models.tokenizer import Tokens as Tokens
from treadle.models.tokenizer import tokenizer as tokenizer
from treadle.models.unet import UNet as UNet
from treadle.models.vae import VAE as VAE
from treadle.models.vit import ViT as ViT
from treadle.names import suggest as _suggest

_suggest(__name__)
