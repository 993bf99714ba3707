//! Messages received but not answered yet. A cancellation takes effect before the cancelled work begins.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use lsp_server::{Message, Notification, Request, RequestId};
use lsp_types::CancelParams;
use lsp_types::NumberOrString;
use lsp_types::notification::{Cancel, Notification as _};

use crate::traces::Read;

pub enum Event {
    Message(Message),
    Trace(Box<Read>),
    /// The client disconnected.
    Closed,
}

pub struct Queue {
    waiting: VecDeque<Event>,
    cancelled: Vec<RequestId>,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

/// No event arrived within the given time.
pub struct Quiet;

impl Queue {
    /// Starts a thread that receives messages as fast as they come.
    pub fn new(take: impl Fn() -> Option<Message> + Send + 'static) -> Queue {
        let (sender, events) = channel();
        let messages = sender.clone();
        std::thread::spawn(move || {
            // The receiving end is dropped once the server has ended.
            while let Some(message) = take() {
                if messages.send(Event::Message(message)).is_err() {
                    return;
                }
            }
            let _ = messages.send(Event::Closed);
        });
        Queue { waiting: VecDeque::new(), cancelled: Vec::new(), events, sender }
    }

    /// The channel to which the server's threads send their results.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The next event, if one has arrived.
    pub fn next_now(&mut self) -> Option<Event> {
        while let Ok(event) = self.events.try_recv() {
            self.add(event);
        }
        self.waiting.pop_front()
    }

    /// The next event. With a time limit, [`Quiet`] if none arrives within it.
    pub fn next(&mut self, wait: Option<Duration>) -> Result<Event, Quiet> {
        if let Some(event) = self.next_now() {
            return Ok(event);
        }
        let event = match wait {
            None => self.events.recv().unwrap_or(Event::Closed),
            Some(wait) => match self.events.recv_timeout(wait) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => return Err(Quiet),
                Err(RecvTimeoutError::Disconnected) => Event::Closed,
            },
        };
        self.add(event);
        self.next_now().ok_or(Quiet)
    }

    /// Requests that were cancelled before work on them began, each once.
    pub fn take_cancelled(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.cancelled)
    }

    fn add(&mut self, event: Event) {
        if let Event::Message(Message::Notification(notification)) = &event
            && let Some(id) = cancelled_by(notification)
        {
            let is_it =
                |event: &Event| matches!(event, Event::Message(Message::Request(Request { id: of, .. })) if *of == id);
            let before = self.waiting.len();
            self.waiting.retain(|event| !is_it(event));
            if self.waiting.len() < before {
                self.cancelled.push(id);
            }
            return;
        }
        self.waiting.push_back(event);
    }
}

fn cancelled_by(notification: &Notification) -> Option<RequestId> {
    if notification.method != Cancel::METHOD {
        return None;
    }
    let params: CancelParams = serde_json::from_value(notification.params.clone()).ok()?;
    Some(match params.id {
        NumberOrString::Number(number) => RequestId::from(number),
        NumberOrString::String(text) => RequestId::from(text),
    })
}
