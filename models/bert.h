// BERT: an encoder. Every token sees all tokens of its row but padding; norms stand behind
// attention and MLP; positions and kinds of tokens (first and second text) are looked up. Two
// heads: one says which token stood where a mask is, the other which class a row is of, by its
// first token.
//
// Params carry the names and, on export, the layout of Hugging Face's BertForMaskedLM or
// BertForSequenceClassification. Layers 0..layers-1 are the blocks; the embeddings belong to layer
// 0, head and loss to the last.
//
//   head        rows                                              loss
//   masked      windows of tokens, of which some are hidden       of the hidden tokens
//   labels > 0  "tokens", "types" [b, s] and "label" [b]          of the row's class
//
// Thread rule: values. Source: Devlin et al. 2019.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"

namespace meshwright::models {

struct BertConfig {
  int64_t vocabulary = 30522;
  int64_t positions = 512;  // longest sequence
  int64_t width = 768;
  int64_t inner = 3072;
  int64_t layers = 12;
  int64_t heads = 12;  // divides width
  int64_t types = 2;   // kinds of tokens
  int64_t labels = 0;  // classes of a row; 0: the head of masked tokens
  double dropout = 0;
  double attention_dropout = 0;
  double classifier_dropout = -1;  // below 0: dropout
  double epsilon = 1e-12;
  Activation activation = Activation::kGeluErf;
  int64_t padding = -1;             // nobody sees this token; -1: none
  int64_t mask_token = 103;         // stands where a token is hidden; -1: not known
  double hidden_share = 0.15;       // of the tokens
  int64_t document_separator = -1;  // as Gpt2Config; of the head of masked tokens
  int64_t ignore_index = -100;
  bool tied = true;  // the head of masked tokens has the embedding; no other is built
  std::vector<std::string> label_names = {};  // in their order; empty: they have none

  int64_t head_size() const { return width / heads; }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const BertConfig& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeBert(const BertConfig& config);

// Trained values by formula.
int64_t ParamCount(const BertConfig& config);

}  // namespace meshwright::models
