// Codec: how a type becomes bytes and comes back. What bytes mean is the user's choice (protobuf, a
// struct, text); actors only carry them.
//
// Decode must be safe on any input. Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meshwright::actor {

template <class T>
struct Codec {
  std::function<std::string(const T&)> encode;
  std::function<Result<T>(std::string_view)> decode;
};

// A message of bytes, for those who carry messages without knowing them.
struct Bytes {
  using Reply = Bytes;
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

inline Codec<Bytes> CodecOfBytes() {
  return {[](const Bytes& bytes) { return bytes.data; },
          [](std::string_view text) -> Result<Bytes> { return Bytes{std::string(text)}; }};
}

// The answer to a Message: its member type Reply.
template <class Message>
using ReplyOf = typename Message::Reply;

template <class Message>
struct MessageCodec {
  Codec<Message> message;
  Codec<ReplyOf<Message>> reply;
};

}  // namespace meshwright::actor
