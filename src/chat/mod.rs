//! Chats as models know them: templates that make of messages a prompt, and what an answer holds besides text.
//!
//! Strings and JSON in, strings and JSON out: nothing here knows a file, a token or a device.

mod builtin;
mod filters;
mod format;
mod gemma;
mod grammar;
mod json;
mod methods;
mod parse;
mod template;
mod time;

pub use builtin::{BUILTIN, builtin};
pub use format::{Calls, Format, Thinking};
pub use grammar::ToolChoice;
pub use parse::{Event, Parser};
pub use template::{Conversation, Template, TemplateError};
