// The ops of the graph: what can be said.
//
// One enumerator per op; names in text are the lower_snake form (kLayerNormGrad <->
// "layer_norm_grad"). Shapes use the named dims b batch, s sequence, d hidden, v vocabulary,
// h heads, g kv heads, e head size. "..." is any leading dims. Scalars have shape []. Statistics
// (mean, rstd, lse, losses, counts, sums of squares) of 16-bit tensors are f32, else of the
// operand's dtype. Every op with its {attributes}, (operands) -> results:
//
// {dtype:str} on einsum, reduce_sum, layer_norm, rms_norm and gradients of products of experts: the
// float type of result 0 where it is not the operands': a cast behind the op, but rounded once.
//
// sources (no operands)
//   param              {name:str, init:"normal"|"zeros"|"ones", mean:real, std:real,
//                      decay:int(0|1), state:int(0|1), [kept:int(0|1)], export_name:str,
//                      export_perm:ints, export_shape, export_row(s), [sign_rate:real]} -> any
//                      float tensor. A trained weight; state 1: what the optimizer keeps between
//                      steps; kept 1: what programs keep between calls, which is in no file of
//                      weights. sign_rate: ir/autodiff.h
//   input              {name:str} -> any. Bound by the caller of the graph (an executable's
//                      operand).
//   feed               {source:"tokens", [batch:int(0|1)]} -> any [b, ...]. Row r of step t is
//   sample
//                      t*b_global + r of the input of that name; rows are split over data and
//                      microbatches. batch 0: one value for all of the step, of any shape, whole
//                      on every device.
//   constant           {value:real} -> any float tensor filled with value.
//   random_normal      {name:str, mean:real, std:real} + sharded dims -> float tensor; element i
//                      of the *global* tensor is
//                      mean + std * PhiloxNormal(seed, StreamOf(name), i); the step does not
//                      matter.
//   learning_rate      {lr, min_lr:real, warmup_steps, total_steps:int,
//                      schedule:str} -> scalar, f32 unless declared; step t (0-based): warm-up
//                      lr*(t+1)/warmup, then what its name says (ir/rate_schedule.h), down to
//                      min_lr at total_steps where it ends there.
// elementwise: what they compute and their gradients are rows of ir/elementwise.cc, but for cast,
// sum and dropout. A binary op takes y[T] whose shape is a suffix of x[..., T]'s (equal shapes
// included) and gives x's shape. Integers are those of i32; results outside of it become its
// nearest number.
//   add, sub, mul      (x, y), also i32
//   divide, pow        (x, y); pow of a negative x needs a whole y
//   maximum, minimum   (x, y), also i32; NaN wins; of equal ones the gradient goes to x
//   gate               (x, y) -> y where x > 0, else 0
//   scale              {factor:real} (x) -> x*factor
//   shift              {value:real} (x) -> x + value
//   mul_scalar         (x, c[]) -> x*c
//   sum                (x0, x1, ...) equal shapes -> elementwise sum, left to right
//   cast               {dtype:str} (x) -> x in that type; to a float rounded to nearest even, to an
//                      integer towards zero (its nearest number where it is too large, NaN 0), to
//                      bool x != 0
//   abs, sign          (x), also i32; sign(0) = 0 and has no gradient
//   relu, exp, log, log1p, sqrt, rsqrt, tanh, sigmoid, erf, square
//   softplus           (x) -> log(1 + e^x)
//   gelu, gelu_erf, silu (x); gelu is the tanh form, gelu_erf x/2 (1 + erf(x/sqrt 2))
//   gelu_grad, silu_grad (x, dy) -> dx
//   stop_gradient      (x) -> x, and no gradient passes
//   equal, not_equal, less, less_equal, greater, greater_equal
//                      (x, y) of one float type or i32 -> bool; of a NaN only not_equal is true
//   logical_and, logical_or, logical_not (x, [y]) of bool
//   select             (c bool, x, y) -> x where c, else y; c has x's shape
//   dropout            {rate:real, name:str} + sharded dims (x) -> x*mask/(1-rate), mask of global
//                      element i from UniformFromBits(PhiloxBits(seed, StreamOf(name), step, i))
//                      >= rate. Its own gradient.
//   noise              {name:str, kind:"uniform"|"normal", [dtype:float], [training:1: else it is
//                      zeros]} + sharded dims (x) -> in x's shape, which alone matters,
//                      UniformFromBits or PhiloxNormal(seed, StreamOf(name), step, i). No gradient.
// structure
//   slice              {dim:int, start:int, size:int} (x)
//   pad                {dim:int, before:int, after:int} (x) zeros around; gradient of slice
//   concat             {dim:int} (x0, x1, ...) one behind the other along dim
//   reshape            (x) -> result type given at build time, same element count
//   transpose          {perm:ints} (x): result dim i is x's dim perm[i]
//   broadcast          {dims:ints} (x) -> result type given at build time: its dims without `dims`
//                      (increasing) are x's; along `dims` x repeats. Gradient of reduce_sum
//   reduce_sum         {dims:ints, [dtype]} (x) -> dims (increasing) removed
//   reduce_max         {dims:ints} (x) -> the largest; NaN wins; equal ones share the gradient
//   sum_squares        (x) -> scalar sum of x^2
// choice
//   gather             {dim:int} (x, ids i32) -> ids' shape, which is x's but for dim: the
//                      elements at ids along it. ids outside of x are an error of the kernel.
//   scatter_add        {dim:int, size:int} (ids, y) -> y's shape with `size` along dim: sums of the
//                      elements of y at their ids. Gradient of gather
//   one_hot            {size:int, [ignore_index:int], [dtype:float]} (ids[...] i32) -> [..., size]:
//                      1 at the id; ids outside and ignore_index give zeros
//   top_k              {k:int} (x[..., v]) -> (values[..., k], ids[..., k] i32), largest first,
//                      equal ones by their place; NaN is larger than all numbers
// contraction
//   einsum             {equation:"bsk,kn->bsn", [dtype], [alone:int(0|1)]} (a, b, [c]); {alone}:
//   the
//                      bits of an element do not depend on how many others are computed with it (on
//                      CPUs; in f64 always); labels are letters, once per
//                      tensor; a label of an operand that is in neither the other operand nor the
//                      result is not allowed. c, of the result's type, is an accumulator: it is
//                      added to the result, and may lend it its memory. Only the executable
//                      compiler makes accumulators, here and below.
// norms (over the last dim d)
//   layer_norm         {eps, [dtype]} (x[..., d], w[d], b[d]) -> (y, mean[...], rstd[...])
//   layer_norm_grad    (x, w, mean, rstd, dy) -> (dx, dw[d], db[d])
//   rms_norm           {eps, [dtype]} (x[..., d], w[d]) -> (y, rstd[...])
//   rms_norm_grad      (x, w, rstd, dy) -> (dx, dw[d])
//   softmax, log_softmax (x[..., d])
// experts: each row of the batch is routed by itself; its slots [groups, capacity] are those of
// groups of neighbouring experts, which have a run of them each, one behind the other
//   expert_slots       {experts, groups, capacity:int, [by_choice, drop:int(0|1)]}
//                      (experts[b, s, k] i32) -> (slot[b, s, k], used[b, experts],
//                      chosen[b, experts], all i32): the place of each choice among the slots of
//                      its row; experts have room in the order of tokens, {by_choice}: for all
//                      first choices before all second ones. No room: slot -1 with {drop}, else an
//                      error of the kernel. chosen counts choices, used those that have a slot.
//                      {hosts, groups, capacity, host_capacity:int} (slot[b, s, k]) ->
//                      (place[b, s, hosts], within[b, hosts, host_capacity, k], tokens[b, hosts]):
//                      each host has its groups; a token has one place on each host that has slots
//                      of it, in the order of tokens, and there its slots among the host's
//   dispatch           {groups, capacity} (x[b, s, d], slot[b, s, k], [weights[b, s, k]]) + sharded
//                      dims of the result -> [b, groups, capacity, d]: x at its slots, 0 elsewhere;
//                      {statistic:int(1)}: x keeps its type under mixed precision. With hosts
//                      x[b, h, s, d], slot[b, h, s, k] and {groups} of each -> [b, h groups, ...];
//                      so, too, the three below
//   combine            (y[b, groups, capacity, d], slot[b, s, k], [weights[b, s, k]]) + sharded
//   dims
//                      of y -> [b, s, d]: the sum of what the token has at its slots
//   combine_grad_weights {[dtype]} (do[b, s, d], y, slot) + sharded dims of y -> [b, s, k]
//   grouped_matmul     {[transposed:int(0|1)], [groups, rows:int]} (x[b, groups, capacity, d],
//                      used[b, experts] i32, w[experts, d, f]) -> [b, groups, capacity, f]: each
//                      run times the matrix of its expert, 0 elsewhere; transposed: w[experts, f,
//                      d]. {rows} slots of a row of the batch have a token, of all {groups}: for
//                      costs
//   grouped_matmul_grad {as grouped_matmul} (x, used, dy, [accumulator]) -> dw[experts, d, f]
// embedding
//   embedding          (table[v, d], ids[...] i32) + sharded dims of table -> [..., d]; ids outside
//                      the local rows give 0. ids outside [0, v) are an error reported by the
//                      kernel.
//   embedding_grad     {rows:int} (ids[...], dy[..., d], [accumulator]) + sharded dims of
//                      the result -> [rows, d], scatter-add
// position
//   rotary             {base:real or frequencies:strs of numbers, inverse:int(0|1), [zigzag:int]}
//                      (x[b, s, h, e], [positions[b, s] i32]) + sharded dims of x -> same; pairs
//                      (i, i+e/2) turn by position * base^(-2i/e) or * frequencies[i], by
//                      `positions` where it is there, else position = that of the global index
//                      along s, which with {zigzag} is in the order of ir/sequence_order.h.
//   segments           {separator:int} (ids[..., s] i32) -> i32, how many ids before a place in its
//                      row are the separator
// attention (causal, scale 1/sqrt(e), kv head of query head j is j / (h/g)); with segments i32[b,s]
// as a last operand, queries see keys of their own segment only
//   attention          {causal:int, [dropout:real, name:str], [zigzag:int]} (q[b,s,h,e],
//                      k[b,s,g,e], v[b,s,g,e], [segments]) -> (o[b,s,h,e], lse[b,h,s]); with
//                      dropout + sharded dims of q: its mask is a function of b, h and the
//                      positions of query and key. Sharded dims with a split s: q is a block of the
//                      row, k and v are all of it, or, {kv_shift:int}, the block of so many ranks
//                      before; segments are those of the row, [b, row]
//   attention_grad     {as attention} (q, k, v, o, lse, do, [segments]) -> (dq, dk, dv)
//   attention_qkv      {as attention; sharded dims of o} (qkv[b,s,3,h,e], [segments]) ->
//   (o[b,s,h,e],
//                      lse[b,h,s]): attention of the three slices of qkv, as many kv heads as heads
//   attention_qkv_grad {as attention_qkv} (qkv, o, lse, do, [segments]) -> dqkv
//   paged_attention    {[window:int]} (q[b,n,h,e], k[b,n,g,e], v[b,n,g,e], pages[b,p,2,g,t,e],
//                      table[b,r,m], row[b,n], position[b,n]; the last three i32) -> (o[b,n,h,e],
//                      lse[b,h,n], pages): n tokens of several texts, in any mixture. Token i is at
//                      position[i] of the text whose pages, of t positions each, row[i] of the
//                      table lists; row -1: it is none, and its o is 0. The keys and values of all
//                      tokens are written, then each token sees its text up to itself. The keys of
//                      a page are [e, t] within a head, its values [t, e]. The pages, of any float
//                      type, are a param that is renewed in place (ir::RenewedOf)
// convolution of images [b, height, width, channels]; padding [top, left, bottom, right], zeros
//   conv2d             {strides:ints[2], padding:ints[4]} (x[b, h, w, i], k[kh, kw, i, o]) ->
//                      [b, (top + h + bottom - kh)/strides + 1, ..., o]
//   conv2d_grad_input  {as conv2d} (k, dy) -> dx, its type given at build time
//   conv2d_grad_kernel {as conv2d} (x, dy) -> dk, its type given at build time
//   window_argmax      {window:ints[2], strides, padding} (x) -> i32[b, oh, ow, c]: the place
//                      y * w + x of the largest element of each window, the first one; padding is
//                      none
//   avg_pool           {window, strides, padding} (x) -> [b, oh, ow, c]: sums over windows divided
//                      by the size of a window
//   avg_pool_grad      {as avg_pool} (dy) -> dx, its type given at build time
// loss; labels equal to ignore_index do not count
//   cross_entropy      {ignore_index:int} (logits[..., v], labels[...] i32) -> (loss_sum[],
//                      count[], lse[...])
//   cross_entropy_grad {ignore_index} (logits, labels, lse, dloss[]) + sharded dims of logits
//                      -> dlogits
//   logsumexp          (x[..., v]) -> [...]
//   pick               {ignore_index} (logits[..., v], labels[...]) + sharded dims of logits
//                      -> logits at the label, 0 where the label is ignored or not in the local
//                      columns
//   nll                {ignore_index} (lse[...], picked[...], labels[...]) -> (loss_sum[], count[])
//   head_loss          {block_tokens:int, ignore_index} (x[..., d], w[v, d], labels[...] i32) ->
//                      (loss_sum[], count[], block[block_tokens, v]): cross_entropy of the logits
//                      x w^T; `block` is memory for the logits of some tokens, its content means
//                      nothing
//   head_loss_grad     {as head_loss} (x, w, labels, dloss[], [accumulator of dw]) ->
//                      (loss_sum[], count[], dx, dw,
//                      block); logits, dx and dw are in the statistics' type
// optimizer (results replace their operands in place)
//   clip_multiplier    {max_norm:real (0: no clipping)} (sum_squares[], count[]) ->
//                      (multiplier[], grad_norm[]): gradients are sums; norm = sqrt(ss)/count;
//                      multiplier = min(1, max_norm/(norm+1e-6))/count
//   adamw              {beta1, beta2, eps, weight_decay:real} (p, g, m, v, multiplier[], lr[]) ->
//                      (p, m, v); g*multiplier is the gradient, bias correction uses step+1,
//                      decoupled decay p*(1-lr*wd) first
//   sgd                {momentum, weight_decay, [sign_beta]} (p, g, m, multiplier[],lr[]) -> (p, m)
// collectives (only in local graphs, made by the planner)
//   axes:strs are mesh axis names, kind "sum"|"max"|"lse"
//   all_reduce         {axes, kind} (x0, x1, ...) -> same shapes; one transfer for all operands (a
//                      bucket)
//   all_gather         {axes, dim} (x) -> dim grows by the axes' size
//   reduce_scatter     {axes, dim, kind} (x) -> dim shrinks
//   all_to_all         {axes, split_dim, concat_dim} (x)
//   ring_shift         {axes, by:int} (x) -> what the caller `by` before this one on the ring of
//   the
//                      axes' devices has; 0 < by < their number
//   shard_slice        {axes, dim} (x) -> the caller's own block of dim; no traffic
// fused (only in executables, made by the compiler)
//   fused              {body:strs, results:ints} (operands) -> results: the steps of the body in
//                      one node (ir/fused.h)
//
// Sharded dims: ops that depend on global positions carry {global_dims:ints, dim_axes:strs} once
// partitioned: entry i of dim_axes lists the mesh axes that split dim i, major first, joined by ','
// ("micro,data"; "" = whole). The axis "micro" is the microbatch index of the RUN. Without these
// attributes the local tensor is the global one. {padded_dims:ints}: blocks are those of a tensor
// of these dims, which has padding behind the elements of the global one (planner/padding.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "ir/op_list.h"

namespace meshwright::ir {

enum class Op : uint8_t {
#define MW_OP_ENUMERATOR(Name, text) k##Name,
  MW_FOR_EACH_OP(MW_OP_ENUMERATOR)
#undef MW_OP_ENUMERATOR
};

#define MW_OP_COUNT_ONE(Name, text) +1
inline constexpr int kOpCount = 0 MW_FOR_EACH_OP(MW_OP_COUNT_ONE);
#undef MW_OP_COUNT_ONE

// Labels that do not count in losses without the attribute ignore_index.
inline constexpr int64_t kDefaultIgnoreIndex = -100;

std::string_view OpName(Op op);
Result<Op> ParseOp(std::string_view name);  // kInvalidArgument with the nearest known name

}  // namespace meshwright::ir
