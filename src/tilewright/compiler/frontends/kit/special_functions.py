"""Special functions as formulas on tensors of f64: gamma and error functions, zeta.

Whoever asks for one rounds it once.  Coefficients are those of the published approximations.  Called by the
rows of front ends.

Source: Lanczos, "A Precision Approximation of the Gamma Function", 1964;
Giles, "Approximating the erfinv function", 2010; Moshier's Cephes; Johansson, "Rigorous high-precision
computation of the Hurwitz zeta function", 2015, formula 5.
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide, log_plus_one, polynomial

# --- the gamma function ------------------------------------------------------------------------

_GAMMA: Final = 7.0
_LANCZOS_BASE: Final = 0.99999999999980993227684700473478
_LANCZOS: Final = (
    676.520368121885098567009190444019, -1259.13921672240287047156078755283,
    771.3234287776530788486528258894, -176.61502916214059906584551354,
    12.507343278686904814458936853, -0.13857109526572011689554707,
    9.984369578019570859563e-6, 1.50563273514931155834e-7,
)  # fmt: skip


def _reflected(x: Wide) -> tuple[Wide, Tensor]:
    """What the series is taken at, and where that is the reflected place."""
    below = x.less(0.5)
    return (-x).where(below, x - 1.0), below


def _log_of_shifted(z: Wide) -> tuple[Wide, Wide]:
    """The place of Lanczos' power, and its logarithm."""
    half = _GAMMA + 0.5
    return z + half, log_plus_one(z / half) + math.log(half)


def log_gamma(x: Wide) -> Wide:
    """The logarithm of the magnitude of the gamma function."""
    z, below = _reflected(x)
    series = z.number(_LANCZOS_BASE)
    for index, coefficient in enumerate(_LANCZOS, 1):
        series = series + coefficient / (z + float(index))
    t, log = _log_of_shifted(z)
    found = (z + 0.5 - t / log) * log + series.apply("log") + math.log(2 * math.pi) / 2
    size = abs(x)
    fraction = size - size.apply("floor")
    fraction = fraction.smaller(1.0 - fraction)
    sine = (fraction * math.pi).apply("sin").apply("log")
    reflection = (math.log(math.pi) - sine - found).where(sine.is_finite(), -sine)
    found = reflection.where(below, found)
    return x.number(math.inf).where(x.is_inf(), found)


def digamma(x: Wide) -> Wide:
    """The derivative of the logarithm of the gamma function."""
    z, below = _reflected(x)
    series, slope = z.number(_LANCZOS_BASE), z.number(0.0)
    for index, coefficient in enumerate(_LANCZOS, 1):
        place = z + float(index)
        slope = slope - coefficient / (place * place)
        series = series + coefficient / place
    t, log = _log_of_shifted(z)
    found = log + slope / series - _GAMMA / t
    turned = (x + abs((x + 0.5).apply("floor"))) * math.pi
    cotangent = turned.apply("cos") * math.pi / turned.apply("sin")
    found = (found - cotangent).where(below, found)
    pole = x.maker.op("logical_and", x.at_most(0.0), x.is_whole())
    return x.number(math.nan).where(pole, found)


# --- zeta and its derivatives ------------------------------------------------------------------

_TERMS_FIRST: Final = 9
_EULER_MACLAURIN: Final = (
    -7.1661652561756670113e18, 1.8152105401943546773e17, -4.5979787224074726105e15,
    1.1646782814350067249e14, -2.950130727918164224e12, 7.47242496e10,
    -1.8924375803183791606e9, 47900160.0, -1209600.0, 30240.0, -720.0, 12.0,
)  # fmt: skip


def zeta(x: Wide, q: Wide) -> Wide:
    """Hurwitz' zeta function: first terms one by one, the others by Euler and Maclaurin."""
    total, place = q.power(-x), q
    for _ in range(_TERMS_FIRST):
        place = place + 1.0
        total = total + place.power(-x)
    place = place + 1.0
    last = place.power(-x)
    found = total + last * place / (x - 1.0) + last * _tail(x, place)
    found = total.where(last.equal(0.0), found)
    return _zeta_where_defined(x, q, found)


def _tail(x: Wide, place: Wide) -> Wide:
    square = 1.0 / (place * place)
    *rest, final = _EULER_MACLAURIN
    total = x.number(0.0)
    for index, coefficient in enumerate(rest):
        above = 2.0 * len(_EULER_MACLAURIN) - 2.0 - 2.0 * index
        total = (x + above) * (x + above - 1.0) * (square * (total + 1.0 / coefficient))
    return x / place * (total + 1.0 / final) + 0.5


def _zeta_where_defined(x: Wide, q: Wide, found: Wide) -> Wide:
    e, nan, infinite = x.maker, x.number(math.nan), x.number(math.inf)
    left = q.at_most(0.0)
    found = nan.where(x.less(1.0), found)
    broken = e.op("logical_not", x.is_whole())
    found = nan.where(e.op("logical_and", left, broken), found)
    pole = e.op("logical_and", left, q.is_whole())
    at_pole = infinite.where(x.remainder(2.0).equal(0.0), nan)
    found = at_pole.where(pole, found)
    return infinite.where(x.equal(1.0), found)


def polygamma(n: Wide, x: Wide) -> Wide:
    """The n-th derivative of digamma."""
    sign = n.remainder(2.0) * 2.0 - 1.0
    found = sign * log_gamma(n + 1.0).apply("exp") * zeta(n + 1.0, x)
    found = digamma(x).where(n.equal(0.0), found)
    e = x.maker
    broken = e.op("logical_not", n.is_whole())
    return x.number(math.nan).where(e.op("logical_or", broken, n.less(0.0)), found)


# --- error functions ---------------------------------------------------------------------------

_ERFC_P: Final = (
    2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687,
    4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2,
    9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2,
)  # fmt: skip
_ERFC_Q: Final = (
    1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
    9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
    1.65666309194161350182e3, 5.57535340817727675546e2,
)  # fmt: skip
_ERFC_R: Final = (
    5.64189583547755073984e-1, 1.27536670759978104416, 5.01905042251180477414,
    6.16021097993053585195, 7.40974269950448939160, 2.97886665372100240670,
)  # fmt: skip
_ERFC_S: Final = (
    1.0, 2.26052863220117276590, 9.39603524938001434673, 1.20489539808096656605e1,
    1.70814450747565897222e1, 9.60896809063285878198, 3.36907645100081516050,
)  # fmt: skip
_LARGEST_LOG: Final = 7.09782712893383996843e2


def _scaled_tail(size: Wide) -> Wide:
    """The complementary error function times e^(x^2), from one on."""
    near = polynomial(size, _ERFC_P) / polynomial(size, _ERFC_Q)
    far = polynomial(size, _ERFC_R) / polynomial(size, _ERFC_S)
    return near.where(size.less(8.0), far)


def complementary_error(x: Wide) -> Wide:
    """1 - erf(x), whose digits stay where erf is nearly one."""
    size = abs(x)
    found = (-(x * x)).apply("exp") * _scaled_tail(size)
    found = found.where((x * x).at_most(_LARGEST_LOG), 0.0)
    found = (2.0 - found).where(x.less(0.0), found)
    found = (1.0 - x.apply("erf")).where(size.less(1.0), found)
    return x.where(x.is_nan(), found)


def scaled_complementary_error(x: Wide) -> Wide:
    """The complementary error function times e^(x^2), which does not vanish far out."""
    size = abs(x)
    tail = _scaled_tail(size)
    tail = (1.0 / (size * math.sqrt(math.pi))).where(size.number(1e9).less(size), tail)
    grown = (x * x).apply("exp") * complementary_error(x)
    return tail.where(x.number(1.0).less(x), grown)


def normal_quantile(p: Wide) -> Wide:
    """The number that a standard normal one is below with probability p; one step of Newton keeps small p exact."""
    lower = p.smaller(1.0 - p)
    y = inverse_error(1.0 - lower * 2.0) * -math.sqrt(2)
    gap = complementary_error(y * -math.sqrt(0.5)) * 0.5 - lower
    slope = (y * y * -0.5).apply("exp") * (1 / math.sqrt(2 * math.pi))
    y = (y - gap / slope).where(y.is_finite(), y)
    found = y.where(p.at_most(0.5), -y)
    outside = p.maker.op("logical_or", p.less(0.0), p.number(1.0).less(p))
    return p.number(math.nan).where(outside, found)


_INVERSE_NEAR: Final = (
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
    1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
    6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
    2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
    4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
    0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
    0.24015818242558961693, 1.6536545626831027356,
)  # fmt: skip
_INVERSE_MIDDLE: Final = (
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
    1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
    2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
    6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
    -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
    3.0838856104922207635,
)  # fmt: skip
_INVERSE_FAR: Final = (
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
    -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
    2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
    -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
    1.0103004648645343977, 4.8499064014085844221,
)  # fmt: skip


def inverse_error(x: Wide) -> Wide:
    """The number whose erf is x."""
    w = -log_plus_one(-(x * x))
    root = w.apply("sqrt")
    near = polynomial(w - 3.125, _INVERSE_NEAR)
    middle = polynomial(root - 3.25, _INVERSE_MIDDLE)
    far = polynomial(root - 5.0, _INVERSE_FAR)
    found = near.where(w.less(6.25), middle.where(w.less(16.0), far)) * x
    return (x * math.inf).where(abs(x).equal(1.0), found)
