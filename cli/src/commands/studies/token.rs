//! `eigenveil token`: the operator's token and those of analysts.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use eigenveil_client::http::OperatorClient;
use eigenveil_server::Environment;
use eigenveil_shared::api::CreateAnalystTokenRequest;
use eigenveil_store::rotate_operator_token;

use super::study_name::find_study;
use crate::{args::OperatorArgs, error::Result, files, output};

/// Make, list and revoke analysts' tokens; rotate the operator's
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  eigenveil token create --name alice --out alice.token\n  eigenveil estimate --study ID --token-file alice.token --job 1 --wait --out result/"
)]
pub(crate) struct TokenCommandArgs {
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make an analyst's token, which reads estimates and nothing else
    #[command(
        after_help = "Example:\n  eigenveil token create --name alice --study 0193c0ffee0193c0ffee0193c0ffee01 --out alice.token"
    )]
    Create {
        /// Name of the analyst who gets the token
        #[arg(long)]
        name: String,
        /// The only study whose estimates the token may read (identifier, its beginning, or name) [default: all
        /// studies]
        #[arg(long, value_name = "ID")]
        study: Option<String>,
        /// File for the token, readable by its owner only; an existing one is refused
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// List the analysts' tokens, without their text
    #[command(after_help = "Example:\n  eigenveil token list --json")]
    List,
    /// Revoke an analyst's token
    #[command(after_help = "Example:\n  eigenveil token revoke 0193c0ffee0193c0")]
    Revoke {
        /// Identifier of the token, as listed
        id: String,
    },
    /// Replace the operator's token: the old one stops working
    #[command(
        after_help = "Example:\n  eigenveil token rotate --out operator.token      # of a running server\n  eigenveil token rotate --data ./data             # of a server that is stopped, with no token at all\n\nIn both cases DATA/operator.token has the new token."
    )]
    Rotate {
        /// Data directory of a stopped server
        #[arg(long, value_name = "DIR", conflicts_with = "out")]
        data: Option<PathBuf>,
        /// File for the new token, readable by its owner only; an existing one is refused
        #[arg(long, value_name = "FILE", required_unless_present = "data")]
        out: Option<PathBuf>,
    },
}

pub(crate) async fn run(args: &TokenCommandArgs, json: bool) -> Result<()> {
    let client = || args.operator.client();
    match &args.command {
        TokenCommand::Create { name, study, out } => {
            let client = client()?;
            let study = match study {
                Some(study) => Some(find_study(&client, study).await?),
                None => None,
            };
            let file = files::NewFile::create(out)?;
            let created = client
                .create_token(&CreateAnalystTokenRequest {
                    name: name.clone(),
                    study,
                })
                .await?;
            save_token(file, &created.token)?;
            let (analyst, out) = (created.analyst, out.display().to_string());
            let answer = serde_json::json!({
                "id": analyst.id, "name": analyst.name, "study": analyst.study, "out": out,
            });
            output::json_or_text(
                json,
                &answer,
                &format!("token {} written to {out}", analyst.id),
            )
        }
        TokenCommand::List => list(&client()?, json).await,
        TokenCommand::Revoke { id } => {
            client()?.revoke_token(id).await?;
            let revoked = serde_json::json!({ "revoked": id });
            output::json_or_text(json, &revoked, &format!("token {id} is revoked"))
        }
        TokenCommand::Rotate { data, out } => {
            let path = match (data, out) {
                (Some(data), _) => rotate_operator_token(data, &Environment::system())?,
                (None, Some(out)) => {
                    let file = files::NewFile::create(out)?;
                    save_token(file, client()?.rotate_token().await?.reveal())?;
                    out.clone()
                }
                // clap requires one of them.
                (None, None) => return Ok(()),
            };
            let path = path.display().to_string();
            let rotated = serde_json::json!({ "token_file": path });
            let text = format!("the operator's new token is in {path}");
            output::json_or_text(json, &rotated, &text)
        }
    }
}

async fn list(client: &OperatorClient, json: bool) -> Result<()> {
    let tokens = client.list_tokens().await?;
    if json {
        return output::json(&serde_json::json!({ "tokens": tokens }));
    }
    if tokens.is_empty() {
        return output::text("no analyst tokens yet; create one with: eigenveil token create");
    }
    for token in &tokens {
        let study = token.study.as_deref().unwrap_or("all studies");
        output::text(&format!("{}  {study:<32}  {}", token.id, token.name))?;
    }
    Ok(())
}

fn save_token(mut file: files::NewFile, token: &str) -> Result<()> {
    file.write(format!("{token}\n").as_bytes())?;
    file.persist()
}
