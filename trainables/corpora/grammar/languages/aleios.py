"""Aleios: verb–object–subject, with a dual, a definite suffix that adjectives share, and prepositions."""

from trainables.corpora.grammar.description import Contrast, Language

ALEIOS = Language(
    name="aleios",
    script="greek",
    segments={"C": "b g d z q k l m n x p r s t f c", "V": "a e i o u h w", "L": "n r s l"},
    features={
        "referent": "protagonist protagonist companion stranger",
        "number": "singular singular singular dual plural plural",
        "case": "direct oblique | genitive",
        "definiteness": "definite definite indefinite",
        "person": "third | first second",
        "mood": "indicative indicative indicative inferential",
        "valency": "intransitive transitive | reporting",
    },
    lexicon={
        "relative": "= q",
        "pronoun": "= ek",
        "anaphor": "= aut",
        "noun": "420 CVC CVL CVCVL VCVC CVLCVC",
        "verb intransitive": "100 CVC CVCVL",
        "verb transitive": "160 CVC CVCVL",
        "verb reporting": "8 CVC",
        "adjective": "140 CVCVC CVLC",
        "adverb": "60 CVCws CVLCws",
        "preposition oblique": "4 VL CVL",
        "preposition genitive": "4 VL CVL",
        "quantifier singular": "1 VCi",
        "quantifier dual": "2 CVCw",
        "quantifier plural": "8 CVCa VCta",
        "sentential indicative": "4 VCVCoi",
        "sentential inferential": "4 VCVCoi",
    },
    paradigms={
        "noun": (
            """
                      direct oblique genitive
            singular    -os    -on     -ou
            dual        -w     -win    -woun
            plural      -es    -as     -wn
            """,
            """
            definite indefinite
              -ta        Ø
            """,
        ),
        "adjective": (
            """
            singular dual plural
               -i    -ei    -a
            """,
            """
            definite indefinite
              -ta        Ø
            """,
        ),
        "verb": (
            """
            indicative inferential
                Ø         -hr
            """,
            """
                    singular  dual    plural
            first     -omi     -owi    -omes
            second    -esi     -esqo   -este
            third     -ei      -eton   -ousi
            """,
        ),
        "relative": (
            """
            singular dual plural
              -os     -w    -oi
            """,
        ),
        "pronoun": (
            """
            singular dual plural
              -os     -w    -oi
            """,
        ),
        "anaphor": (
            """
            singular dual plural
              -ou     -oin  -wn
            """,
        ),
        "speaker": (
            """
                      singular  dual    plural
            first       egw      nwi     hmeis
            second      su       sfwi    umeis
            """,
        ),
    },
    rules={
        "episode": """
            4 introduction(number referent) resumption(number) assertion(number referent)
            2 introduction(number referent) resumption(number) resumption(number)
            2 introduction(number referent) assertion(number referent) conversation
            1 question(number) resumption(number) assertion
        """,
        "introduction": """
            1 verb(intransitive third number) adverb? np(direct number indefinite referent) .
            1 verb(transitive third number) object np(direct number indefinite referent) .
        """,
        "assertion": """
            2 intransitive(number referent)
            4 transitive(number referent)
            2 located(number referent)
            2 relativised(number referent)
            2 counted
            2 owning(number referent)
            2 qualified(number referent)
            1 reported(number referent)
        """,
        "intransitive": "1 verb(intransitive third number) adverb? np(direct number definite referent) .",
        "transitive": "1 verb(transitive third number) object np(direct number definite referent) .",
        "located": "1 verb(intransitive third number) pp np(direct number definite referent) .",
        "relativised": """
            1 verb(intransitive third number) np(direct number definite referent) relative_clause(number) .
        """,
        "relative_clause": "1 , relative(number) object verb(transitive third number)",
        "counted": """
            1 verb(intransitive third number) pp? quantifier(number) noun(direct number indefinite) .
        """,
        "owning": """
            1 verb(transitive third number) noun(oblique definite) anaphor(number)
                np(direct number definite referent) .
        """,
        "qualified": """
            1 sentential(mood) , verb(transitive third number mood) object
                np(direct number definite referent) .
        """,
        "reported": """
            1 verb(reporting third number) np(direct number definite referent) , 'oti'
                verb(intransitive third number2) np(direct number2) .
        """,
        "resumption": """
            3 verb(transitive third number) object pronoun(number) .
            2 verb(intransitive third number) adverb? pronoun(number) .
            1 verb(intransitive third number) pp pronoun(number) .
            1 'mh' verb(transitive third number) object pronoun(number) .
        """,
        "conversation": """
            2 verb(transitive first number) object speaker(first number) .
            1 verb(intransitive first number) adverb speaker(first number) .
            1 'ara' verb(transitive second number) object speaker(second number) ?
        """,
        "question": "1 'ara' verb(transitive third number) object np(direct number definite) ?",
        "object": """
            5 np(oblique)
            1 np(oblique) 'kai' np(oblique)
            1 noun(oblique definite) noun(genitive definite)
        """,
        "pp": """
            1 preposition(oblique) np(oblique)
            1 preposition(genitive) np(genitive)
        """,
        "np": """
            4 noun(case number definiteness referent)
            3 noun(case number definiteness referent) adjective(number definiteness)
        """,
    },
    contrasts=(
        Contrast(
            "verb–subject agreement in number across an object", "transitive", "verb", "number", attractor="object noun"
        ),
        Contrast("adjective–noun agreement in definiteness", "transitive", "object adjective", "definiteness"),
        Contrast("adjective–noun agreement in number", "intransitive", "np adjective", "number"),
        Contrast(
            "relative pronoun–antecedent agreement in number", "relativised", "relative_clause relative", "number"
        ),
        Contrast("preposition government", "located", "pp noun", "case", values="oblique genitive"),
        Contrast("case marking", "owning", "* noun", "case", values="direct oblique"),
        Contrast("number after a quantifier", "counted", "noun", "number"),
        Contrast("possessive–antecedent agreement in number", "owning", "anaphor", "number"),
        Contrast("mood and sentential adverb", "qualified", "verb", "mood"),
        Contrast("order of preposition and noun", "located", "pp preposition"),
    ),
)
