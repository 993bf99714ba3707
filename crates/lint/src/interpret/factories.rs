//! Tensor construction: from sizes, from host data, by typed constructors.

use super::*;

/// Whether a function of torch makes a new tensor from sizes: `rest` is its name without `torch.`.
pub(super) fn is_factory(rest: &str) -> bool {
    Role::DrawsFrom.fits(rest) || api::torch_function(rest).is_some_and(api::Row::takes_device)
}

impl<'p, 'a> Interpreter<'p, 'a> {
    pub(super) fn host_data_to_tensor(&mut self, node: &'a ExprCall, arguments: &Arguments<'a>) -> Value {
        match arguments.first() {
            // `torch.tensor(tensor)` copies without moving. A guessed tensor is not confirmed by that.
            Value::Tensor(tensor) if !tensor.is_assumed() => Value::Tensor(Tensor { graph: false, ..tensor }),
            _ => Value::Tensor(match self.device_of(node, arguments) {
                Some(Placement::Device) => Tensor { boolean: makes_mask(node), ..Tensor::ON_DEVICE },
                _ => Tensor { boolean: makes_mask(node), origin: Origin::HostData(node.range()), ..Tensor::ON_HOST },
            }),
        }
    }

    /// `torch.FloatTensor(rows, columns)` allocates that size; `torch.FloatTensor(rows)` holds its argument.
    pub(super) fn typed_tensor(&mut self, node: &'a ExprCall, rest: &str, arguments: &Arguments<'a>) -> Value {
        let placement = if Role::DeviceModule.fits(rest) { Placement::Device } else { Placement::Host };
        let range = node.range();
        let is_size = |argument: &Expr, value: &Value| match value {
            _ if argument.is_starred_expr() => true,
            Value::Number { .. } => true,
            // `torch.FloatTensor(x.size())`
            Value::List(element) => **element == Value::SIZE,
            _ => false,
        };
        let is_place = !node.arguments.args.is_empty()
            && (arguments.has_unknown
                || node.arguments.args.iter().zip(&arguments.positional).all(|(node, value)| is_size(node, value)));
        match arguments.first() {
            Value::Tensor(tensor) if !tensor.is_assumed() => Value::Tensor(Tensor { graph: false, ..tensor }),
            _ if is_place => Value::Tensor(Tensor { placement, origin: Origin::Factory(range), ..Tensor::ON_DEVICE }),
            _ => Value::Tensor(Tensor { placement, origin: Origin::HostData(range), ..Tensor::ON_DEVICE }),
        }
    }

    /// Where `device=` puts a new tensor; `None` where it is not given.
    pub(super) fn device_of(&self, node: &'a ExprCall, arguments: &Arguments) -> Option<Placement> {
        let keyword = node.arguments.find_keyword(Role::DeviceOption.word())?;
        let value = arguments.keyword(Role::DeviceOption.word());
        Some(placement_named(&keyword.value, value).unwrap_or(Placement::Device))
    }

    pub(super) fn factory(&mut self, node: &'a ExprCall, rest: &str, arguments: &Arguments<'a>) -> Value {
        let placement = match self.device_of(node, arguments) {
            Some(placement) => placement,
            // Without `device=` the tensor is made on the host, unless it draws from a device tensor. Sizes do not
            // matter.
            None if Role::DrawsFrom.fits(rest) && arguments.all().any(Value::is_on_device) => Placement::Device,
            None => Placement::Host,
        };
        let is_random = api::torch_function(rest).is_some_and(|row| row.draws);
        let shapes_only = !arguments.has_unknown
            && arguments.keywords.iter().all(|(name, value)| match name {
                Some(name) => Role::FactoryOption.fits(name) || value.is_sized(),
                None => false,
            })
            && (arguments.positional.iter().all(Value::is_sized)
                || !is_random && node.arguments.args.iter().all(|argument| self.is_size(argument)));
        let range = node.range();
        // `arange` from a fixed start always gives a prefix of the same sequence.
        let is_row = Role::Counting.fits(rest)
            && !arguments.has_unknown
            && match (arguments.positional.as_slice(), arguments.keyword(Role::StartOption.word())) {
                ([_], _) => true,
                ([start, ..], _) | ([], Some(start)) => start.known_integer().is_some(),
                ([], None) => arguments.keyword(Role::EndOption.word()).is_some(),
            };
        let is_constant = is_row || shapes_only && !is_random;
        let origin = if is_constant { Origin::Constant(range) } else { Origin::Factory(range) };
        let boolean = makes_mask(node);
        Value::Tensor(Tensor { placement, origin, boolean, ..Tensor::ON_DEVICE })
    }

    /// Whether a size argument consists of sizes and settings. An unknown value counts if it is an attribute of the
    /// object itself, since no tensor may be used there.
    fn is_size(&mut self, expression: &'a Expr) -> bool {
        match expression {
            Expr::BinOp(operation) => self.is_size(&operation.left) && self.is_size(&operation.right),
            Expr::UnaryOp(operation) => self.is_size(&operation.operand),
            Expr::Tuple(tuple) => tuple.elts.iter().all(|element| self.is_size(element)),
            Expr::List(list) => list.elts.iter().all(|element| self.is_size(element)),
            _ => {
                let is_fixed = |name: &str| !Role::Counter.fits_any_case(name) && !Role::EpochName.fits(name);
                let of_self = attribute_of_self(expression).is_some_and(is_fixed);
                let value = self.quietly(|quiet| quiet.evaluate(expression));
                value.is_sized() || (of_self && value == Value::Unknown)
            }
        }
    }

    /// `cat([batch, torch.zeros(…)])`: a part made on the host here, which is moved with the rest.
    pub(super) fn made_part(&mut self, node: &'a ExprCall) -> Option<Origin> {
        let parts = match node.arguments.args.first()? {
            Expr::List(list) => &list.elts,
            Expr::Tuple(tuple) => &tuple.elts,
            _ => return None,
        };
        parts.iter().find_map(|part| match self.quietly(|quiet| quiet.evaluate(part)) {
            Value::Tensor(Tensor {
                placement: Placement::Host,
                origin: Origin::Constant(made) | Origin::Factory(made),
                ..
            }) => Some(Origin::Factory(made)),
            _ => None,
        })
    }
}

/// `dtype=torch.bool`.
pub(super) fn makes_mask(node: &ExprCall) -> bool {
    let dtype = node.arguments.find_keyword(Role::DtypeOption.word());
    dtype.and_then(|dtype| last_name(&dtype.value)).is_some_and(|name| Role::TruthType.fits(name))
}
