"""Plan conversions, batches and sums from shapes, strides and dtypes, without touching an array.

keywords      the error for a keyword that does not exist
centering     the rules that center windows and padding: `center=`
fitting       the arithmetic of windows that are fitted or drawn
padding       the region of a padded result that x fills: `pad_to=`, `pad_before=`, `fill=`
channels      the channel selection of `channels=`
loops         the loops around a conversion or a sum, simplified
select        the table of kernels and the choice of one
epilogue      the casts and affine formulas that a kernel applies as it stores
plan          the plan of one conversion, also with `memory=` or `pad_to=`
resize        the resize options of a Collator
batch         the plan of a batch of samples
accumulate    the plan of a sum
chunked       the plan of a conversion of a chunked array
yuv           video frames in planes: the formula of RGB, and the plan of one frame
gradient      the conversions that compute inverses and gradients
"""
