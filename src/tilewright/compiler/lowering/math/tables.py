"""Numbers of the mathematical functions: polynomial coefficients and split constants.

Every polynomial is a minimax fit (Remez exchange in 60 digits, relative error of the function's
value, then rounded to the type), lowest power first; the comment says what is fitted, where and how
well.  Constants are split so that products with small integers are exact.  Read by `expand_math`.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record

Coefficients = tuple[float, ...]
Quotient = tuple[Coefficients, Coefficients]
"""P and Q of P / Q."""


@final
@record(kw_only=True)
class Table:
    """What depends on the floating-point type.

    Attributes:
        dtype: the type; `integer` is the signed one of as many bits.
        bits: width of the type; `mantissa` of its fraction.
        magic: added and subtracted, it rounds to an integer that its low bits then hold.
        ln2: ln 2 as a short first part and the rest.
        lift: 2**lift times a denormal number is normal, and times 1 far from infinite.
        exp_range: beyond it exp is 0 or infinite.
        exp: (e**r - 1 - r) / r**2, |r| <= ln2/2, relative to e**r.
        expm1: the same, relative to e**r - 1; none for f32.
        log: see `Math.log` of `expand_math`.
        tanh_end: from here on tanh is 1.
        tanh: f32: (s coth(s) - 1) / s**2 in s**2, |s| < 0.2575.
        erf_end: from here on erf is 1.
        erf: f32: erf(x) / x in x**2, up to `erf_end`.
        erf_near: f64: erf(x) / x - 1 in x**2, up to `erf_split`.
        erf_far: f64: -log(erfc(x)) in x - `erf_center`, from `erf_split` to `erf_end`.
        sin: (sin(r) - r) / r**3 in r**2, |r| <= pi/4.
        cos: (cos(r) - 1 + r**2/2) / r**4 in r**2.
    """

    dtype: DType
    integer: DType
    bits: int
    mantissa: int
    magic: float
    ln2: tuple[float, float]
    lift: int
    exp_range: tuple[float, float]
    exp: Coefficients
    log: Coefficients
    least_normal: float
    tanh_end: float
    erf_end: float
    sin: Coefficients
    cos: Coefficients
    tanh: Coefficients = ()
    erf: Quotient = ((), ())
    expm1: Coefficients = ()
    erf_split: float = 0.0
    erf_center: float = 0.0
    erf_near: Coefficients = ()
    erf_far: Coefficients = ()


LOG2_E: Final = float.fromhex("0x1.71547652b82fep+0")
TWO_OVER_PI: Final = float.fromhex("0x1.45f306dc9c883p-1")
HALF_PI_PARTS: Final = (
    float.fromhex("0x1.921fb54000000p+0"),  # 27 bits
    float.fromhex("0x1.10b4610000000p-30"),  # 27 bits
    float.fromhex("0x1.a62633145c06ep-58"),
)
LARGE_ANGLE: Final = 1e8
"""Above, n = x / (pi/2) times 27 bits is no longer exact in f64."""

F32: Final = Table(
    dtype=dtypes.f32,
    integer=dtypes.i32,
    bits=32,
    mantissa=23,
    magic=1.5 * 2.0**23,
    ln2=(float.fromhex("0x1.62e8p-1"), float.fromhex("-0x1.e8082ep-16")),
    lift=64,
    exp_range=(-104.5, 89.0),
    # 2**-27.3
    exp=(
        0.4999999403953552, 0.1666652262210846, 0.04166822507977486, 0.008367916569113731,
        0.0013817892177030444,
    ),
    # of (log(1+f) - f + f**2/2) / f**3 for sqrt(1/2) <= 1+f <= sqrt(2), to 2**-26.8
    log=(
        0.3333333134651184, -0.2500082552433014, 0.20001263916492462, -0.16623090207576752,
        0.14200657606124878, -0.13164226710796356, 0.12770916521549225, -0.07627138495445251,
    ),
    least_normal=2.0**-126,
    tanh_end=9.02,
    # 2**-25.4 of s coth(s)
    tanh=(0.3333294987678528, -0.02203146554529667),
    erf_end=3.93,
    # 2**-25.6
    erf=(
        (
            1.1283791065216064, 0.1907803863286972, 0.05278976634144783, 0.0037794425152242184,
            0.00028480167384259403, 2.041959760390455e-06,
        ),
        (
            1.0, 0.5024074912071228, 0.11425601691007614, 0.014997107908129692,
            0.0011651664972305298, 3.8003563531674445e-05,
        ),
    ),
    # 2**-27.1
    sin=(-0.166666641831398, 0.008332603611052036, -0.00019562998204492033),
    # 2**-31.6
    cos=(0.0416666641831398, -0.0013888073153793812, 2.4508084607077762e-05),
)  # fmt: skip

F64: Final = Table(
    dtype=dtypes.f64,
    integer=dtypes.i64,
    bits=64,
    mantissa=52,
    magic=1.5 * 2.0**52,
    ln2=(float.fromhex("0x1.62e42fefap-1"), float.fromhex("0x1.cf79abc9e3b3ap-40")),
    lift=512,
    exp_range=(-746.0, 710.0),
    # 2**-60.1
    exp=(
        0.5, 0.16666666666666682, 0.04166666666666609, 0.008333333333316918,
        0.0013888888889117307, 0.00019841269896679622, 2.4801586924530873e-05,
        2.7557234559985737e-06, 2.7557582852758907e-07, 2.5112144098308705e-08,
        2.082651985786614e-09,
    ),
    # 2**-59.4
    expm1=(
        0.5, 0.16666666666666666, 0.041666666666666706, 0.008333333333333337,
        0.00138888888888645, 0.00019841269841253584, 2.4801587364178127e-05,
        2.755731926570529e-06, 2.7557240188445836e-07, 2.5052055703915798e-08,
        2.0925128039107444e-09, 1.6091287127046035e-10,
    ),
    # (2 atanh(s) - 2 s) / s**3 in s**2, s = f / (2 + f), 2**-60.5
    log=(
        0.6666666666666666, 0.4000000000000004, 0.28571428571342494, 0.22222222268134792,
        0.18181808603210087, 0.15385561338409953, 0.13286027416892102, 0.12916625233755957,
    ),
    least_normal=2.0**-1022,
    tanh_end=19.1,
    erf_split=1.0,
    erf_center=1.5,
    erf_end=6.0,
    # 2**-56.3
    erf_near=(
        0.1283791670955126, -0.37612638903183754, 0.11283791670955125,
        -0.026866170645130614, 0.005223977625422698, -0.0008548327020599878,
        0.00012055332752555969, -1.4925639332418173e-05, 1.6461780710823398e-06,
        -1.635933482296942e-07, 1.4725241582171059e-08, -1.1643126213530059e-09,
        6.441151817843135e-11,
    ),
    # 2**-56.8 of erf
    erf_far=(
        3.3844920895515527, 3.508800801779529, 0.8926403306150407, 0.02582414063359169,
        -0.006006746386508523, 0.0012572166875771621, -0.00021596330507243938, 2.2473683136737628e-05,
        2.646840402243482e-06, -2.3708258475773826e-06, 8.187344927216919e-07, -1.9260078034309214e-07,
        2.7903008818229646e-08, 1.0434686531667143e-09, -2.379274979126528e-09, 9.745113536967465e-10,
        -2.7070799892107785e-10, 5.760902748863189e-11, -9.585672693793697e-12, 1.2315745483344603e-12,
        -1.1809874444657456e-13, 7.951999609555734e-15, -3.3496603655551096e-16, 6.6329632574903e-18,
    ),
    # 2**-57.1
    sin=(
        -0.16666666666666666, 0.008333333333333333, -0.00019841269841268562,
        2.7557319221911657e-06, -2.505210705555263e-08, 1.6058650203382416e-10,
        -7.593012378246707e-13,
    ),
    # 2**-59.0
    cos=(
        0.041666666666666664, -0.001388888888888852, 2.4801587300273692e-05,
        -2.755731793910137e-07, 2.0876263475779513e-09, -1.1389739974426552e-11,
    ),
)  # fmt: skip

TABLES: Final = {dtypes.f32: F32, dtypes.f64: F64}

# normal_cdf(x) - 1/2 of f32 as x P(x**2) / Q(x**2) to 2**-26.6 for |x| < 5, then up to 2e-7 beyond 1/2.
NORMAL_END: Final = 5.5**2
NORMAL_NUMERATOR: Final = (
    0.398942232131958, 0.034255970269441605, 0.0047050537541508675, 0.0001731122611090541,
    6.403872248483822e-06, 2.2639060404117117e-08,
)  # fmt: skip
NORMAL_DENOMINATOR: Final = (
    1.0, 0.2525326907634735, 0.028884368017315865, 0.001909377402625978, 7.510920841014013e-05,
    1.1975896541116526e-06,
)  # fmt: skip

TWO_THIRDS: Final = (
    float.fromhex("0x1.5555555555555p-1"),
    float.fromhex("0x1.5555555555555p-55"),
)
LN2_PARTS: Final = (
    float.fromhex("0x1.62e42fefap-1"),
    float.fromhex("0x1.cf79abc9e3b3ap-40"),
    float.fromhex("-0x1.ff0342542fc33p-94"),
)
"""ln 2; an exponent times the first part is exact."""
