// What the families of models/decoder.h share. Internal to models/.
//
// Thread rule: constant data and pure functions.
#pragma once

#include <string>
#include <vector>

#include "models/decoder.h"
#include "models/families/families.h"
#include "models/family_row.h"

namespace meshwright::models {

// A small model's sizes.
DecoderConfig SmallDecoder(DecoderConfig of_family);

// rope_theta and how positions are stretched, by both generations of keys. Errors: as
// ReadRopeScaling.
Status ReadDecoderRope(const HfConfig& json, DecoderConfig& config);
// The part of a head that turns is the caller's.
void WriteDecoderRope(const DecoderConfig& config, HfWriter& json);

// One tensor with queries, keys and values, as BLOOM and Falcon name it.
DecoderNames BloomNames();

FamilyRow<DecoderConfig> BloomFamily();
FamilyRow<DecoderConfig> FalconFamily();
FamilyRow<DecoderConfig> GptNeoxFamily();
FamilyRow<DecoderConfig> GptjFamily();
FamilyRow<DecoderConfig> OptFamily();
FamilyRow<DecoderConfig> PhiFamily();

}  // namespace meshwright::models
