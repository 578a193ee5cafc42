// Matrices of 16 by 16.
const S = 16u;
alias MatrixA = coop_mat16x16<f16, A>;
alias MatrixB = coop_mat16x16<f16, B>;
alias MatrixC = coop_mat16x16<f32, C>;
