//! Chats as models know them: templates that make of messages a prompt, and what an answer holds besides text.
//!
//! Strings and JSON in, strings and JSON out: nothing here knows a file, a token or a device.
