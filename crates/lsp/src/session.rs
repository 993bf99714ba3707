//! The main loop of a session: handles messages one by one, and between them publishes findings of what changed.

use std::time::Duration;

use lsp_server::{ErrorCode, Message, Request, Response};
use lsp_types::MessageType;

use crate::queue::{Event, Quiet};
use crate::server::{Server, Stage};
use crate::{Ending, notifications, requests};

/// Other open documents of a project are checked again once no message has arrived for this long.
const SETTLED: Duration = Duration::from_millis(200);

/// Serves until either side ends the session.
pub fn run(mut server: Server) -> Ending {
    loop {
        let event = server.queue.next_now();
        for id in server.queue.take_cancelled() {
            server.answer_error(id, ErrorCode::RequestCanceled, "cancelled");
        }
        let event = match event {
            Some(event) => event,
            None if !server.soon.is_empty() => {
                let unit = server.soon.remove(0);
                server.publish(&unit);
                continue;
            }
            None => match server.queue.next((!server.later.is_empty()).then_some(SETTLED)) {
                Ok(event) => event,
                Err(Quiet) => {
                    server.soon.append(&mut server.later);
                    continue;
                }
            },
        };
        if let Some(ending) = take(&mut server, event) {
            return ending;
        }
    }
}

/// Handles an event. A panic on the way becomes an error of this one message.
fn take(server: &mut Server, event: Event) -> Option<Ending> {
    match event {
        Event::Closed => return Some(Ending::Left),
        Event::Trace(read) => server.take_trace(*read),
        Event::Message(Message::Response(response)) => server.take_response(response),
        Event::Message(Message::Notification(notification)) if notification.method == "exit" => {
            return Some(if server.stage == Stage::Down { Ending::Asked } else { Ending::Left });
        }
        Event::Message(Message::Notification(notification)) => {
            let method = notification.method.clone();
            let done = server.guarded(|server| notifications::take(server, notification));
            if let Err(message) = done.unwrap_or_else(|panic| Err(format!("an internal error of the server: {panic}")))
            {
                server.log(MessageType::ERROR, &format!("{method}: {message}"));
            }
        }
        Event::Message(Message::Request(request)) => {
            let Request { id, method, params } = request;
            match server.guarded(|server| requests::answer(server, &method, params)) {
                Ok(Ok(result)) => server.answer(Response::new_ok(id, result)),
                Ok(Err((code, message))) => server.answer_error(id, code, &message),
                Err(panic) => {
                    server.log(MessageType::ERROR, &format!("{method}: an internal error of the server: {panic}"));
                    server.answer_error(id, ErrorCode::InternalError, &panic);
                }
            }
        }
    }
    None
}
