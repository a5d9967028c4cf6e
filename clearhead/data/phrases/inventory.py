"""The CLDR ids that the embedded corpus covers: translated in every well-kept locale, and few enough to learn.

`cldr.py` leaves out names with an explanation in brackets ("Myanmar (Burma)", "Congo - Kinshasa"). Brackets and
dashes join phrases in the corpus, so such a name would look like a composition.
"""

COUNTRIES: tuple[str, ...] = tuple(
    """
    AD AE AF AL AM AO AR AT AU AZ BB BD BE BF BG BH BI BJ BN BO BR BS BT BW BY BZ CA CF CH CI CL CM CN CO
    CR CU CY CZ DE DJ DK DO DZ EC EE EG ER ES ET FI FJ FR GA GB GE GH GM GN GQ GR GT GY HN HR HT HU ID IE
    IL IN IQ IR IS IT JM JO JP KE KG KH KM KP KR KW KZ LA LB LI LK LR LS LT LU LV LY MA MC MD ME MG MK ML
    MN MR MT MU MV MW MX MY MZ NA NE NG NI NL NO NP NZ OM PA PE PG PH PK PL PT PY QA RO RS RU RW SA SC SD
    SE SG SI SK SL SM SN SO SR SV SY TD TG TH TJ TM TN TR TZ UA UG US UY UZ VE VN YE ZA ZM ZW
    """.split()
)

LANGUAGES: tuple[str, ...] = tuple(
    """
    af am ar as ay az ba be bg bn bo br bs ca ce co cs cv cy da de dv el en eo es et eu fa fi fo fr fy ga
    gd gl gn gu ha he hi hr ht hu hy id ig is it ja jv ka kk km kn ko ku kw ky la lb ln lo lt lv mg mi mk
    ml mn mr ms mt my nb ne nl nn nv oc om or os pa pl ps pt qu rm ro ru rw sa sc sd se si sk sl sm sn so
    sq sr st su sv sw ta te tg th ti tk tr tt ty ug uk ur uz vi wo xh yi yo zh zu
    """.split()
)

CURRENCIES: tuple[str, ...] = tuple(
    """
    ARS AUD BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JOD JPY KES KRW KWD KZT
    MAD MXN MYR NGN NOK NZD PEN PHP PKR PLN RON RSD RUB SAR SEK SGD THB TND TRY UAH USD VND ZAR
    """.split()
)

SYMBOLS: tuple[str, ...] = tuple("USD EUR GBP JPY INR KRW ILS VND BRL CAD AUD NZD MXN TWD".split())
"""Currencies with a sign of their own. The sign of any other currency is its code."""

DURATIONS: tuple[str, ...] = ("year", "month", "week", "day", "hour", "minute", "second")

UNITS: tuple[str, ...] = tuple(
    """
    length-millimeter length-centimeter length-meter length-kilometer length-inch length-foot length-yard
    length-mile length-nautical-mile length-light-year mass-milligram mass-gram mass-kilogram mass-ounce
    mass-pound mass-tonne volume-milliliter volume-centiliter volume-liter volume-gallon
    volume-cubic-meter volume-tablespoon volume-teaspoon area-square-meter area-square-kilometer
    area-hectare speed-kilometer-per-hour speed-meter-per-second speed-mile-per-hour speed-knot
    temperature-celsius temperature-fahrenheit digital-bit digital-byte digital-kilobyte digital-megabyte
    digital-gigabyte digital-terabyte energy-joule energy-kilojoule energy-calorie energy-kilocalorie
    energy-kilowatt-hour power-watt power-kilowatt power-horsepower frequency-hertz frequency-megahertz
    frequency-gigahertz electric-volt electric-ampere electric-ohm pressure-hectopascal pressure-bar
    graphics-pixel graphics-megapixel concentr-percent
    """.split()
)

AT_LEAST = {"country": 60, "language": 40, "currency": 20, "symbol": 1, "unit": 20, "duration": 7, "relative": 4}
"""Minimum number of translated names per role for a locale to be composed from."""

ORDINAL_FIRST: frozenset[str] = frozenset({"fr", "it", "pt", "ca", "oc", "br"})
"""Languages that write the first of a month as an ordinal ("1er mai"), which CLDR's patterns cannot express."""

FULL_WIDTH_BRACKETS: frozenset[str] = frozenset({"zh", "yue"})

ZERO: dict[str, str] = {
    "latn": "0",
    "arab": "\u0660",
    "arabext": "\u06f0",
    "deva": "\u0966",
    "beng": "\u09e6",
    "guru": "\u0a66",
    "gujr": "\u0ae6",
    "mymr": "\u1040",
    "tibt": "\u0f20",
    "khmr": "\u17e0",
    "olck": "\u1c50",
    "cakm": "\U00011136",
    "adlm": "\U0001e950",
    "rohg": "\U00010d30",
    "mtei": "\uabf0",
}
"""The digit zero of every numbering system that some locale uses by default. The other nine digits follow it."""
