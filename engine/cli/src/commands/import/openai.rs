//! Requests of an OpenAI-compatible endpoint: messages, and perhaps usage and times.

use serde_json::Value;

use super::{Asked, Blocks, Log, values};

/// There is no tokenizer here.
const BYTES_OF_A_TOKEN: u64 = 4;
const BLOCK_TOKENS: u64 = 64;

pub(super) fn read(text: &str, mut names: Blocks) -> Result<Log, (usize, String)> {
    let notes = vec![format!("there is no tokenizer: {BYTES_OF_A_TOKEN} bytes of a prompt are taken for a token")];
    let mut log = Log { block_tokens: BLOCK_TOKENS, requests: Vec::new(), notes };
    for line in values(text) {
        let (number, value) = line?;
        log.requests.push(request(&value, &mut names).map_err(|why| (number, why))?);
    }
    Ok(log)
}

fn request(value: &Value, names: &mut Blocks) -> Result<Asked, String> {
    let bodies = [value, &value["body"], &value["request"], &value["request"]["body"]];
    let body = bodies.into_iter().find(|body| body["messages"].is_array());
    let body = body.ok_or("expected `messages`, a list, in the line or in its `body` or `request`")?;
    // Tools stand before the messages in every chat template.
    let mut prompt = body["tools"].to_string().into_bytes();
    for message in body["messages"].as_array().expect("just looked at") {
        // Written with its fields sorted, so that one message is the same bytes in every request.
        prompt.extend(message.to_string().into_bytes());
    }
    let input_tokens = (prompt.len() as u64).div_ceil(BYTES_OF_A_TOKEN);
    let block = (BLOCK_TOKENS * BYTES_OF_A_TOKEN) as usize;
    let at_ms = time_ms(value).unwrap_or(0);
    let took = value["duration_ms"].as_u64().or_else(|| value["latency_ms"].as_u64());
    Ok(Asked {
        session: session(value, body),
        at_ms,
        end_ms: took.map(|took| at_ms + took),
        input_tokens,
        output_tokens: output_tokens(value),
        blocks: names.of(prompt.chunks(block)),
    })
}

/// Seconds or milliseconds since 1970.
fn time_ms(value: &Value) -> Option<u64> {
    let mut times = ["timestamp", "created_at", "created"].into_iter().filter_map(|name| value[name].as_f64());
    let time = times.find(|time| *time >= 0.0)?;
    Some(if time < 1e11 { time * 1000.0 } else { time } as u64)
}

fn session(value: &Value, body: &Value) -> Option<String> {
    let named = [&value["session_id"], &value["conversation_id"], &body["metadata"]["session_id"], &body["user"]];
    named.into_iter().find_map(Value::as_str).map(str::to_owned)
}

fn output_tokens(value: &Value) -> u64 {
    let responses = [value, &value["response"], &value["response"]["body"]];
    let used = responses.iter().find_map(|response| response["usage"]["completion_tokens"].as_u64());
    let said = || {
        let message = responses.iter().find_map(|response| response["choices"][0]["message"].as_object());
        message.map_or(0, |message| Value::Object(message.clone()).to_string().len() as u64 / BYTES_OF_A_TOKEN)
    };
    used.unwrap_or_else(said)
}
