"""Rows for the special functions of CHLO: gamma, error and Bessel functions, zeta.

All are computed in f64 and rounded once.  Coefficients are those of the published approximations.

Source: CHLO, per operation in the row; Lanczos, "A Precision Approximation of the Gamma Function", 1964;
Giles, "Approximating the erfinv function", 2010; Moshier's Cephes; Johansson, "Rigorous high-precision
computation of the Hurwitz zeta function", 2015, formula 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.row import Build, Row, row
from tilewright.compiler.frontends.stablehlo.wide import Wide, log_plus_one, polynomial

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


def complementary_error(x: Wide) -> Wide:
    """1 - erf(x), whose digits stay where erf is nearly one."""
    size = abs(x)
    power = (-(x * x)).apply("exp")
    near = power * polynomial(size, _ERFC_P) / polynomial(size, _ERFC_Q)
    far = power * polynomial(size, _ERFC_R) / polynomial(size, _ERFC_S)
    found = near.where(size.less(8.0), far)
    found = found.where((x * x).at_most(_LARGEST_LOG), 0.0)
    found = (2.0 - found).where(x.less(0.0), found)
    found = (1.0 - x.apply("erf")).where(size.less(1.0), found)
    return x.where(x.is_nan(), found)


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


# --- Bessel's function -------------------------------------------------------------------------

_BESSEL_NEAR: Final = (
    2.77791411276104639959e-18, -2.11142121435816608115e-17, 1.55363195773620046921e-16,
    -1.10559694773538630805e-15, 7.60068429473540693410e-15, -5.04218550472791168711e-14,
    3.22379336594557470981e-13, -1.98397439776494371520e-12, 1.17361862988909016308e-11,
    -6.66348972350202774223e-11, 3.62559028155211703701e-10, -1.88724975172282928790e-9,
    9.38153738649577178388e-9, -4.44505912879632808065e-8, 2.00329475355213526229e-7,
    -8.56872026469545474066e-7, 3.47025130813767847674e-6, -1.32731636560394358279e-5,
    4.78156510755005422638e-5, -1.61760815825896745588e-4, 5.12285956168575772895e-4,
    -1.51357245063125314899e-3, 4.15642294431288815669e-3, -1.05640848946261981558e-2,
    2.47264490306265168283e-2, -5.29459812080949914269e-2, 1.02643658689847095384e-1,
    -1.76416518357834055153e-1, 2.52587186443633654823e-1,
)  # fmt: skip
_BESSEL_FAR: Final = (
    7.51729631084210481353e-18, 4.41434832307170791151e-18, -4.65030536848935832153e-17,
    -3.20952592199342395980e-17, 2.96262899764595013876e-16, 3.30820231092092828324e-16,
    -1.88035477551078244854e-15, -3.81440307243700780478e-15, 1.04202769841288027642e-14,
    4.27244001671195135429e-14, -2.10154184277266431302e-14, -4.08355111109219731823e-13,
    -7.19855177624590851209e-13, 2.03562854414708950722e-12, 1.41258074366137813316e-11,
    3.25260358301548823856e-11, -1.89749581235054123450e-11, -5.58974346219658380687e-10,
    -3.83538038596423702205e-9, -2.63146884688951950684e-8, -2.51223623787020892529e-7,
    -3.88256480887769039346e-6, -1.10588938762623716291e-4, -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
)  # fmt: skip


def _chebyshev(x: Wide, coefficients: tuple[float, ...]) -> Wide:
    """Clenshaw's sum of a series whose first term counts half."""
    last = before = found = x.number(0.0)
    for coefficient in coefficients:
        last, before = before, found
        found = x * before - last + coefficient
    return (found - last) * 0.5


def bessel_i1e(x: Wide) -> Wide:
    """The modified Bessel function of order one, times e^-|x|."""
    size = abs(x)
    near = size * _chebyshev(size * 0.5 - 2.0, _BESSEL_NEAR)
    far = _chebyshev(32.0 / size - 2.0, _BESSEL_FAR) / size.apply("sqrt")
    found = near.where(size.at_most(8.0), far)
    return found * x.apply("sign")


def _one(function: Callable[[Wide], Wide]) -> Build:
    def build(call: Call) -> Tensor:
        x = call.tensor(0)
        return function(Wide.of(call.maker, x)).rounded(x.dtype)

    return build


def _two(function: Callable[[Wide, Wide], Wide]) -> Build:
    def build(call: Call) -> Tensor:
        x, y = call.tensor(0), call.tensor(1)
        found = function(Wide.of(call.maker, x), Wide.of(call.maker, y))
        return found.rounded(x.dtype)

    return build


ROWS: Final[tuple[Row, ...]] = (
    row("chlo.bessel_i1e", _one(bessel_i1e), pointwise=True),
    row("chlo.digamma", _one(digamma), pointwise=True),
    row("chlo.erf_inv", _one(inverse_error), pointwise=True),
    row("chlo.erfc", _one(complementary_error), pointwise=True),
    row("chlo.lgamma", _one(log_gamma), pointwise=True),
    row("chlo.polygamma", _two(polygamma), pointwise=True),
    row("chlo.zeta", _two(zeta), pointwise=True),
)
