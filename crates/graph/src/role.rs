//! Roles: the function of a node or a parameter in the model. Passes, counts, files and advice use roles; module names
//! are left to the model families.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Token embedding table.
    Embedding,
    /// Learned position table.
    Position,
    Norm,
    /// Norm of each head's queries or keys.
    HeadNorm,
    Query,
    Key,
    Value,
    /// One projection that produces all three.
    QueryKeyValue,
    /// Scores, softmax, weighted sum and rotation: attention without its projections.
    Attention,
    /// Projection of the heads' output.
    Output,
    /// Adds a branch to the residual stream.
    Residual,
    Gate,
    Up,
    /// Between the projections of the feed-forward block.
    Activation,
    Down,
    Head,
    Loss,
    /// Added to a row; only parameters have this role.
    Bias,
    /// Outside of any model: the optimizer, gradient sums.
    #[default]
    Other,
}

impl Role {
    pub const ALL: [Role; 19] = [
        Role::Embedding,
        Role::Position,
        Role::Norm,
        Role::HeadNorm,
        Role::Query,
        Role::Key,
        Role::Value,
        Role::QueryKeyValue,
        Role::Attention,
        Role::Output,
        Role::Residual,
        Role::Gate,
        Role::Up,
        Role::Activation,
        Role::Down,
        Role::Head,
        Role::Loss,
        Role::Bias,
        Role::Other,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Role::Embedding => "embedding",
            Role::Position => "position",
            Role::Norm => "norm",
            Role::HeadNorm => "head-norm",
            Role::Query => "query",
            Role::Key => "key",
            Role::Value => "value",
            // The form in which a fused call names its roles.
            Role::QueryKeyValue => "query+key+value",
            Role::Attention => "attention",
            Role::Output => "output",
            Role::Residual => "residual",
            Role::Gate => "gate",
            Role::Up => "up",
            Role::Activation => "activation",
            Role::Down => "down",
            Role::Head => "head",
            Role::Loss => "loss",
            Role::Bias => "bias",
            Role::Other => "other",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = Role::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("there is no role `{text}`"))
    }
}

/// A parameter's place in the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its leaf in the model's tree, such as `layers.3.self_attn.q_proj`; every file that mentions it uses the same
    /// path.
    pub path: Arc<str>,
    pub role: Role,
}

impl Part {
    pub fn new(path: &str, role: Role) -> Part {
        Part { path: path.into(), role }
    }

    /// The last word of its module: `q_proj`.
    pub fn leaf(&self) -> &str {
        let module = self.path.strip_suffix(".weight").unwrap_or(&self.path);
        module.rsplit('.').next().unwrap_or_default()
    }
}

/// The number of the block that a module or leaf is in. Blocks are `layers.<n>` in every family.
pub fn block_of(path: &str) -> Option<usize> {
    path.strip_prefix("layers.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_reads_as_it_is_written() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("wheel".parse::<Role>().is_err());
    }

    #[test]
    fn a_path_knows_its_block_and_its_leaf() {
        assert_eq!([block_of("layers.13.mlp.up"), block_of("layers.2"), block_of("norm")], [Some(13), Some(2), None]);
        assert_eq!(Part::new("layers.0.attn.c_attn.weight", Role::QueryKeyValue).leaf(), "c_attn");
        assert_eq!(Part::new("lm_head", Role::Head).leaf(), "lm_head");
    }
}
