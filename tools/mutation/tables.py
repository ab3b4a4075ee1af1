"""What becomes what."""

import ast

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPPOSITES = [
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("mean", "sum"),
    ("add", "subtract"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("sin", "cos"),
    ("floor", "ceil"),
    ("logical_and", "logical_or"),
]
SWAPPED = {one: other for pair in OPPOSITES for one, other in (pair, pair[::-1])} | {"std": "var"}
NAMESPACES = ("jnp", "np", "jax", "math", "lax")
# Calls whose first argument could stand in their place.
TRANSPARENT = frozenset(
    """clip abs exp sqrt square log log1p expm1 power maximum minimum sigmoid softmax log_softmax tanh relu cumsum floor
    ceil round nan_to_num negative legal_values stop_gradient""".split()  # noqa: SIM905
)
TWO_BRANCHES = frozenset({"where", "_where", "cond", "select"})
MASKS = frozenset({"mask", "next_mask", "legal"})
# How a thing is computed or held, not what it is.
TECHNICAL = frozenset(
    """static frozen slots precision dtype strict unroll has_aux donate_argnums static_argnames static_argnums
    nondiff_argnums""".split()  # noqa: SIM905
)
SIMPLE = (ast.Constant, ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.stmt)
