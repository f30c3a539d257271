//! Whether a paper's claims hold in our results.

/// One claim of the paper about an exhibit, compared with our numbers.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Claim {
    /// The paper's statement, in our words.
    pub claim: String,
    /// Whether it holds in our results.
    pub holds: bool,
    /// The numbers that decide it.
    pub evidence: String,
}

/// The claims of an exhibit, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaperVerdict {
    /// Its claims.
    pub claims: Vec<Claim>,
}

impl PaperVerdict {
    /// Adds a claim.
    #[must_use]
    pub fn with_claim(
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
    pub fn summary_word(&self) -> &'static str {
        match self.claims.iter().filter(|claim| claim.holds).count() {
            holding if holding == self.claims.len() => "agrees",
            0 => "disagrees",
            _ => "agrees in part",
        }
    }

    /// One line: the word and the reasons.
    pub fn line(&self) -> String {
        let reasons: Vec<String> = self
            .claims
            .iter()
            .map(|claim| {
                let word = if claim.holds {
                    "holds"
                } else {
                    "does not hold"
                };
                format!("{} {word}: {}", claim.claim, claim.evidence)
            })
            .collect();
        format!("{}: {}", self.summary_word(), reasons.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_word_counts_the_claims_that_hold() {
        let one = PaperVerdict::default().with_claim("more is more", true, "2 > 1");
        assert_eq!((one.summary_word(), one.agrees()), ("agrees", true));
        let both = one.with_claim("less is more", false, "1 < 2");
        assert_eq!(both.summary_word(), "agrees in part");
        assert_eq!(
            both.line(),
            "agrees in part: more is more holds: 2 > 1; less is more does not hold: 1 < 2"
        );
        let none = PaperVerdict::default().with_claim("less is more", false, "1 < 2");
        assert_eq!(none.summary_word(), "disagrees");
    }
}
