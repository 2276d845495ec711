// Answers that a client has not acknowledged, in the order in which they were given.
//
// Thread rule: one thread. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "proto/client_messages.h"

namespace meshwright::controller {

class KeptAnswers {
 public:
  void Add(uint64_t id, proto::ClientDown news, int64_t bytes) {
    answers_.push_back({id, std::move(news), bytes});
    bytes_ += bytes;
  }
  void Acknowledge(const std::vector<uint64_t>& ids) {
    std::erase_if(answers_, [&](const Answer& answer) {
      if (std::find(ids.begin(), ids.end(), answer.id) == ids.end()) return false;
      bytes_ -= answer.bytes;
      return true;
    });
  }
  // Of one ask, or of all.
  std::vector<proto::ClientDown> Of(std::optional<uint64_t> id) const {
    std::vector<proto::ClientDown> news;
    for (const Answer& answer : answers_) {
      if (!id || answer.id == *id) news.push_back(answer.news);
    }
    return news;
  }
  std::vector<uint64_t> ids() const {
    std::vector<uint64_t> all;
    for (const Answer& answer : answers_) all.push_back(answer.id);
    return all;
  }
  bool Has(uint64_t id) const {
    return std::any_of(answers_.begin(), answers_.end(),
                       [&](const Answer& answer) { return answer.id == id; });
  }
  size_t size() const { return answers_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Answer {
    uint64_t id = 0;
    proto::ClientDown news;
    int64_t bytes = 0;
  };
  std::deque<Answer> answers_;
  int64_t bytes_ = 0;
};

}  // namespace meshwright::controller
