//! Whether a paper's claims hold in our numbers.

/// One claim of the paper about an exhibit, compared with our numbers.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Claim {
    /// What the paper says, in our words.
    pub claim: String,
    /// Whether it holds in our numbers.
    pub holds: bool,
    /// The numbers that decide.
    pub evidence: String,
}

/// The claims of an exhibit, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Its claims.
    pub claims: Vec<Claim>,
}

impl Verdict {
    /// With one claim more.
    #[must_use]
    pub fn with(
        mut self,
        claim: impl Into<String>,
        holds: bool,
        evidence: impl Into<String>,
    ) -> Self {
        self.claims.push(Claim {
            claim: claim.into(),
            holds,
            evidence: evidence.into(),
        });
        self
    }

    /// Whether every claim holds.
    pub fn agrees(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }

    /// One word: "agrees", "disagrees", or "agrees in part".
    pub fn word(&self) -> &'static str {
        match self.claims.iter().filter(|claim| claim.holds).count() {
            held if held == self.claims.len() => "agrees",
            0 => "disagrees",
            _ => "agrees in part",
        }
    }

    /// One line: the word, and why.
    pub fn line(&self) -> String {
        let reasons: Vec<String> = self
            .claims
            .iter()
            .map(|claim| {
                let held = if claim.holds {
                    "holds"
                } else {
                    "does not hold"
                };
                format!("{} {held}: {}", claim.claim, claim.evidence)
            })
            .collect();
        format!("{}: {}", self.word(), reasons.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_says_how_many_claims_hold() {
        let one = Verdict::default().with("more is more", true, "2 > 1");
        assert_eq!((one.word(), one.agrees()), ("agrees", true));
        let both = one.with("less is more", false, "1 < 2");
        assert_eq!(both.word(), "agrees in part");
        assert_eq!(
            both.line(),
            "agrees in part: more is more holds: 2 > 1; less is more does not hold: 1 < 2"
        );
        let none = Verdict::default().with("less is more", false, "1 < 2");
        assert_eq!(none.word(), "disagrees");
    }
}
